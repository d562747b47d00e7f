"""What scripts import from torch.distributed.elastic: `multiprocessing.errors.record`."""
