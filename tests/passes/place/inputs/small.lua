-- A machine with little memory: 16 kB a device.
return { nodes = 1, per_node = 8, inside = { alpha = 1e-6, beta = 1e-10 }, memory = 16e3, memory_speed = 20e9, f32 = 1e11 }
