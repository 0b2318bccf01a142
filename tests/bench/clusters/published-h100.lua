-- Llama 3's cluster in bf16: Grand Teton with eight H100 of 80 GB and 700 W, RoCE of 400 Gb/s for each (Grattafiori et al. 2024,
-- section 3.3.1).
--
-- inside               18 NVLinks of 20.6 GB/s, what NCCL counts on for Hopper (NCCL, src/graph/topo.h)
-- memory_speed         90 % of 3350 GB/s, as in published-selene.lua
-- attention_efficiency of FlashAttention-2 on an H100: 335 of 989 TFLOP/s, forward and backward (Dao 2023, figure 7)
-- half_efficiency      FITTED (published.py)
return {
  like = "h100:2048x8",
  inside = { alpha = 0.6e-6, beta = 1 / 371e9 }, memory = 85.5e9, memory_speed = 3015e9,
  half_efficiency = 0.72, attention_efficiency = 0.34, nccl = true,
}
