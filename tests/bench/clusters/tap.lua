-- Servers of eight V100 of 32 GB with PCIe, 32 Gb/s of Ethernet between servers (TAP, section 4.6).
return {
  nodes = 60, per_node = 8,
  inside = { alpha = 5e-6, beta = 1 / 12e9 },
  across = { alpha = 30e-6, beta = 1 / 4e9 },
  start = 6.6e-6,
  memory = 34.1e9, memory_speed = 900e9, f32 = 15.7e12, half = 125e12, launch = 2e-6,
}
