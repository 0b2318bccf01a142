-- 64 A100 of 80 GB with torchtitan in bf16 (docs/performance.md at 0413364): published-selene.lua, with FSDP2's gathers of the next
-- layer beside computation: nine weights, each gathered in three steps between nodes. The page does not describe the network.
-- FITTED: half_efficiency.
return {
  like = "a100:8x8",
  inside = { alpha = 0.6e-6, beta = 1 / 240e9 }, memory = 85.2e9, memory_speed = 1835e9,
  half_efficiency = 0.71, attention_efficiency = 0.6, prefetch = 27, nccl = true,
}
