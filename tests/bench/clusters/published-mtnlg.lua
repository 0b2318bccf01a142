-- Selene with MT-NLG's DeepSpeed and Megatron in bf16 (Smith et al. 2022, section 2.4): published-selene.lua with sums in f32.
-- FITTED: half_efficiency. It is less than Megatron-LM's: the same model of 530 G has 163 TFLOP/s in SC 2021's table 1, 113 to
-- 126 here.
return {
  nodes = 2048, per_node = 8, nics = 8,
  inside = { alpha = 0.6e-6, beta = 1 / 240e9 },
  across = { alpha = 2.7e-6, beta = 1 / 25e9 },
  start = 6.6e-6,
  memory = 85.2e9, reserve = 0.6e9, memory_speed = 1835e9, f32 = 19.5e12, half = 312e12, launch = 2e-6, host = 32e9,
  half_efficiency = 0.62, attention_efficiency = 0.6, blocking = true,
}
