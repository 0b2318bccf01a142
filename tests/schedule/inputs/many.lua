stages = 1000000
