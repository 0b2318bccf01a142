-- Two chunks of the model on each device, without constraints on the order.
stages = 2 * devices
