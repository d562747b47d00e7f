"""Memory shown (torch.utils.viz)."""
