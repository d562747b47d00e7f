"""Simulated GPUs: separate host memory with a capacity, asynchronous streams, events, peer links and a virtual clock.

`models` what each GPU is, `arena` a device's memory, `queues` its streams, `clock` what work costs, `driver` all of it
behind the driver interface.
"""
