-- Llama 3's stages: the embedding, 126 layers and the head are eight chunks on each of 16 ranks, so that the first and the last
-- rank have a layer less (Grattafiori et al. 2024, section 3.3.2).

local chunks = 8

function step(axis)
  local products, norms = ops("linear", "forward"), ops("rms_norm", "forward")
  local deal = { { ops("gather")[1] } }
  -- Each layer begins with a norm, and has another one; the last norm is that of the head.
  for i = 1, #norms - 1, 2 do deal[#deal + 1] = { norms[i] } end
  deal[#deal + 1] = { products[#products] }
  place(axis, { deal = deal })
  schedule("interleaved:" .. chunks)
end
