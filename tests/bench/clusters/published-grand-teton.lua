-- torchtitan's Grand Teton in bf16: H100 of 96 GB with HBM2e of 2.4 TB/s and 500 W, a network of 400 Gb/s for each
-- (benchmarks/llama3_h100_202412_torchtitan.md). Other figures as in published-h100.lua; gathers ahead as in published-a100.lua.
-- FITTED: half_efficiency, with the lower power limit.
return {
  like = "h100:16x8",
  inside = { alpha = 0.6e-6, beta = 1 / 371e9 }, memory = 100e9, memory_speed = 2160e9,
  half_efficiency = 0.5, attention_efficiency = 0.34, prefetch = 27, nccl = true,
}
