-- Co-shard: data parallelism, and products split into pieces that run in sequence on one rank
-- (nnScaler, table 5).
--
--     --plan coshard=8               pairs of products in two pieces, wherever that is possible
--     --plan coshard:4=8             in four
--     --plan coshard:6@1-2:4@3-4=8   in six in layers 1 and 2, in four in layers 3 and 4
--
-- Pairs of products are split as tensor parallelism splits them, along the heads of an attention or
-- the columns of a hidden layer. But all pieces stay on one rank, without communication. Fewer
-- activations between the two products exist at a time; all of them are still saved for backward
-- unless they are recomputed.

local asked = {} -- { n = pieces, first =, last = layers }

function numbers(list)
  asked = list
end

function model()
  apply("tp")
  if #asked == 0 then coshard{ ops = ops("linear"), pieces = 2, skip = true } end
  local all, of = layers(), {} -- of: by layer, its number of pieces
  for _, number in ipairs(asked) do
    for i = number.first or 1, number.last or math.max(#all, 1) do
      if i > #all and number.first then
        refuse(number, ("there is no layer %d, there are %d"):format(number.last, #all))
        return
      elseif of[i] then
        refuse(number, ("layer %d is to be in %d pieces, and in %d"):format(i, of[i], number.n))
        return
      end
      of[i] = number.n
    end
    local list = ops("linear")
    if number.first then
      list = {}
      for i = number.first, number.last do list[#list + 1] = all[i] end
    end
    coshard{ ops = list, pieces = number.n }
  end
end

function step(axis)
  apply("dp", axis)
end
