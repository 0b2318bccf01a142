return { nodes = 2, per_node = 2, inside = { alpha = 1e-7, beta = 1e-11 }, across = { alpha = 2e-5, beta = 1e-11 }, launch = 1e-6, f32 = 1e12, memory_speed = 1e11 }
