-- Vocabulary parallelism: tensor parallelism, and the embedding, the product that makes logits and the
-- loss cut by words (Megatron-LM, section 3; words.lua).

function model()
  apply("tp")
end

function step(axis)
  apply("tp", axis)
  apply("words", axis)
end
