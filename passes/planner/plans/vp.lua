-- Vocabulary parallelism: tensor parallelism, with the embedding, the logits product and the loss
-- sharded along the vocabulary (Megatron-LM, section 3; words.lua).

function model()
  apply("tp")
  apply("words")
end

function step(axis)
  apply("tp", axis)
  apply("words", axis)
end
