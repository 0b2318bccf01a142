-- AutoDDL's two servers of 16 A100 of 40 GB (section 5.3.1) with OneFlow in 16 bits: google-a100.lua, with the memory of the
-- devices, 80 % of NVLink's 300 GB/s as NCCL counts it (20 GB/s of 25 for each link), and eager dispatch.
return {
  nodes = 2, per_node = 16,
  inside = { alpha = 0.6e-6, beta = 1 / 240e9 },
  across = { alpha = 2.7e-6, beta = 1 / 12.5e9 },
  start = 6.6e-6,
  memory = 42.3e9, reserve = 0.6e9, memory_speed = 1555e9, f32 = 19.5e12, half = 312e12, launch = 2e-6, host = 32e9,
  half_efficiency = 0.5, dispatch = 8e-6, nccl = true,
}
