-- MegaScale's cluster with its baseline, Megatron-LM of 2023 in bf16: servers of eight A100 of 80 GB with an adapter of 200 Gb/s
-- each (Jiang et al., NSDI 2024, section 6). Figures as in published-selene.lua; gradients are summed in f32, and nothing overlaps,
-- which is what MegaScale adds (section 3.2). FITTED: half_efficiency.
return {
  like = "a100:2048x8",
  inside = { alpha = 0.6e-6, beta = 1 / 240e9 }, memory = 85.2e9, memory_speed = 1835e9,
  half_efficiency = 0.8, attention_efficiency = 0.6, blocking = true, nccl = true,
}
