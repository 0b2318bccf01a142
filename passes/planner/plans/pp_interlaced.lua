-- Pipeline stages for an embedding that is too large for one rank: it is sharded along the
-- vocabulary over all ranks, and so are the logits, with the same table if it is tied. Each rank
-- alternates between its share of these and its stage (nnScaler, table 6 and figure 6).
--
-- With other axes inside, as pp_interlaced=4,tp=2, a stage has several ranks, and the table is
-- sharded over these, too. Ranks inside with rows or tokens of their own have the same part of it: the
-- axis of a program has its name.

local own_rows = { dp = true, zero1 = true, zero2 = true, zero3 = true, ep = true, cp = true, cp_a2a = true }

function inside(axis)
  if not own_rows[axis] then apply("words", axis) end
end

function model()
  local all = size(true)
  apply(all and "words:" .. all or "words")
end

local layers_of = "" -- the numbers of pp

function numbers(list)
  for _, number in ipairs(list) do layers_of = layers_of .. ":" .. number.text end
end

function step(axis)
  apply("words", axis)
  apply("pp" .. layers_of, axis)
  schedule("interlaced")
end
