"""What is done with graphs as a whole (torch.fx.passes)."""
