-- Megatron-LM with sequence parallelism: tensor parallelism, norms and dropouts split along the
-- sequence, and embedding, logits and loss split by words.

function model()
  apply("tp")
end

function step(axis)
  apply("vp", axis)
  apply("sp", axis)
end
