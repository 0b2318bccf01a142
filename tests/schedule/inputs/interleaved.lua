-- Two chunks of the model on each device, in whatever order.
stages = 2 * devices
