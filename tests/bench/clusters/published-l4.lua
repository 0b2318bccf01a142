-- One server of L4 without peer access on Google's cloud (Mist's artifact, README.md): clocks fixed at 1050 MHz of 2040. Data
-- sheet: 24 GB, 300 GB/s of which 90 % are reached, 30.3 and 121 TFLOP/s. Links as Mist measures them there: 3 GB/s of a device in
-- sums of two (its README's "GPU to GPU params"). FITTED: half_efficiency.
return {
  nodes = 1, per_node = 8,
  inside = { alpha = 1e-6, beta = 1 / 3e9 },
  start = 6.6e-6,
  memory = 24e9, reserve = 0.6e9, memory_speed = 270e9, f32 = 30.3e12, half = 121e12, launch = 2e-6, host = 12e9,
  half_efficiency = 0.59, half_comm = true, blocking = true,
}
