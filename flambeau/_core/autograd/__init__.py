"""The tape: recording, modes, saved tensors, backward passes.  Its public face is `flambeau.autograd`."""
