-- Selene with MT-NLG's DeepSpeed and Megatron in bf16 (Smith et al. 2022, section 2.4): published-selene.lua with sums in f32.
-- FITTED: half_efficiency. It is less than Megatron-LM's: the same model of 530 G has 163 TFLOP/s in SC 2021's table 1, 113 to
-- 126 here.
return {
  like = "a100:2048x8",
  inside = { alpha = 0.6e-6, beta = 1 / 240e9 }, memory = 85.2e9, memory_speed = 1835e9,
  half_efficiency = 0.56, attention_efficiency = 0.6, blocking = true, nccl = true,
}
