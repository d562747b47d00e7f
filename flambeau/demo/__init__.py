"""The demo: a small convolutional network learns handwritten digits (`flambeau demo`)."""
