-- A machine with little memory: 64 bytes a device.
return { nodes = 1, per_node = 8, inside = { alpha = 1e-6, beta = 1e-10 }, memory = 64, memory_speed = 20e9, f32 = 1e11 }
