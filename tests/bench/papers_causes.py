"""Causes of predicted speedups far from the published ones, with their sources, by row of papers.py."""

CAUSES = {
    "swin-32-dgx2-deepspeed":
        "nnScaler names weights \"on the critical path of forward and backward passes\", across nodes (8.3.2). By bytes "
        "and links these take a sixth of the step. ZeRO-3's gathers have been slower than their links by far: 480 ms "
        "of a forward that takes 60 without them, 5 G parameters on 8 A100 with NVLink (DeepSpeed, issue 1174), so 21 "
        "GB/s.",
    "swin-32-dgx1-deepspeed":
        "As on DGX-2. DeepSpeed measured ZeRO-3 on DGX-2 with fewer adapters: below 20 TFLOP/s of a V100 with 100 "
        "Gb/s, over 40 with 800 (issue 2928). From DGX-2 to DGX-1 the price of a step doubles; nnScaler's takes 2.5 "
        "times as long (8.3.5). MiCS (Zhang et al., VLDB 2022) is up to 2.89 times as fast as DeepSpeed on a public "
        "cloud, by smaller groups that gather.",
    "t5-32-dgx2-deepspeed":
        "The baseline does not fit: both gradients of the tied table, of the logits and of the lookup, are whole on a "
        "rank until they are added, 12.9 GB each in f32. DeepSpeed's are fp16 (communication_data_type, "
        "runtime/engine.py). On devices with more memory 32 micro-batches instead of 64 take 274 s, 2.4 times the "
        "paper's plan.",
    "mbart-16-dgx1-deepspeed":
        "SuperScaler: offloading \"requires expensive communication to fetch large weights from CPU and synchronize "
        "large embedding gradients\", without overlap (6.2). Both are paid for each micro-batch, and the paper does "
        "not say how many there are: with 64, as in the plan that it is compared with, the price is 4.3 times that "
        "plan's; with the 16 that fit, less than twice.",
    "mbart-16-dgx1-megatron":
        "Sums between ranks are priced in f32, as nnaot computes them; Megatron-LM sums activations as they are, in fp16 "
        "(_reduce of core/tensor_parallel/mappings.py). With 16 bits on all links (half_comm) the baseline takes 303 s and the "
        "plan 129 s, 2.34 times as fast.",
    "alphafold-32-dgx1-deepspeed":
        "nnScaler does not say the stages of its plan (8.3.4, 8.3.5). With four stages in a server instead of two of two ranks, 24 "
        "of the 128 layers are 1.48 times as fast as the baseline; 128 do not fit, for 34.9 GB of activations that are saved for "
        "the micro-batches in flight.",
}
