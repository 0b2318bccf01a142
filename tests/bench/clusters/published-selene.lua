-- Selene with Megatron-LM of 2021 and 2022 in f16: DGX A100 of 80 GB, eight adapters of 200 Gb/s (Narayanan et al. 2021, section
-- 5). Sums are in f16, and none overlaps with computation: there was no option for it.
--
-- inside               12 NVLinks of 20 GB/s, what NCCL counts on for Ampere (NCCL, src/graph/topo.h)
-- memory_speed         90 % of 2039 GB/s, as Calculon has it for kernels of 100 MB (Isaev et al., SC 2023; systems/a100_80g.json)
-- attention_efficiency of FlashAttention-2 on an A100, forward and backward (Dao 2023, figure 4); the rows have scores in memory
-- half_efficiency      FITTED (published.py): products of whole steps at 225 of 312 TFLOP/s. 267.9 is the most that one product
--                      of any shape has (Bekman, "Machine Learning Engineering")
return {
  like = "a100:512x8",
  inside = { alpha = 0.6e-6, beta = 1 / 240e9 }, memory = 85.2e9, memory_speed = 1835e9,
  half_efficiency = 0.72, attention_efficiency = 0.6, half_comm = true, blocking = true, nccl = true,
}
