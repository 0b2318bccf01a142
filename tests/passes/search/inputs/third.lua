return {per_node = 8, inside = {alpha = 1e-6, beta = 1e-10}, memory = 3e6, memory_speed = 2e10, f32 = 1e11}
