"""torch.distributed.elastic.multiprocessing: `errors.record`."""
