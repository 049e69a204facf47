#include "tokenizer/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tierkv {
namespace {

using Table = std::map<std::pair<TokenId, TokenId>, MergeStep>;

std::optional<MergeStep> look_up(const Table& table, TokenId left, TokenId right) {
  const auto found = table.find({left, right});
  if (found == table.end()) return std::nullopt;
  return found->second;
}

std::vector<TokenId> merge(const std::vector<TokenId>& ids, const Table& table) {
  Merger merger;
  for (const TokenId id : ids) merger.add(1, id);
  merger.run([&](const MergeSymbol& left, const MergeSymbol& right) {
    return look_up(table, left.id, right.id);
  });
  std::vector<TokenId> out;
  uint32_t end = 0;
  merger.for_each([&](const MergeSymbol& symbol) {
    EXPECT_EQ(symbol.start, end);
    end += symbol.length;
    out.push_back(symbol.id);
  });
  EXPECT_EQ(end, ids.size());
  return out;
}

// The definition: find the best pair, of equals the leftmost; join it; begin again.
std::vector<TokenId> merge_slowly(std::vector<TokenId> ids, const Table& table) {
  while (true) {
    size_t best = ids.size();
    MergeStep best_step{UINT32_MAX, kNoToken};
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto step = look_up(table, ids[i], ids[i + 1]);
      if (step && step->priority < best_step.priority) {
        best = i;
        best_step = *step;
      }
    }
    if (best == ids.size()) return ids;
    ids[best] = best_step.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(Merge, AgreesWithTheDefinitionOnRandomTables) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    Table table;
    for (uint32_t rank = 0; rank < 12; ++rank) {
      const TokenId left = random() % 8, right = random() % 8;
      // Few distinct priorities, so that ties are common.
      table.insert({{left, right}, {rank % 5, static_cast<TokenId>(3 + random() % 5)}});
    }
    std::vector<TokenId> ids(random() % 30);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % 4);
    ASSERT_EQ(merge(ids, table), merge_slowly(ids, table)) << round;
  }
}

TEST(Merge, OfEqualPairsTheLeftmost) {
  const Table table = {{{0, 0}, {0, 1}}};
  EXPECT_EQ(merge({0, 0, 0}, table), (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(merge({0, 0, 0, 0, 0}, table), (std::vector<TokenId>{1, 1, 0}));
  EXPECT_EQ(merge({}, table), std::vector<TokenId>{});
  EXPECT_EQ(merge({0}, table), std::vector<TokenId>{0});
}

// Work is counted, not timed: pairs rated are at most one a neighbour and two a merge.
TEST(Merge, WorkIsLinearInTheNumberOfSymbols) {
  constexpr size_t kSymbols = 1 << 16;
  Merger merger;
  for (size_t i = 0; i < kSymbols; ++i) merger.add(1, 0);
  size_t rated = 0;
  merger.run([&](const MergeSymbol& a, const MergeSymbol& b) -> std::optional<MergeStep> {
    ++rated;
    if (a.id != b.id) return std::nullopt;
    return MergeStep{static_cast<uint32_t>(a.id), a.id + 1};
  });
  size_t left = 0;
  merger.for_each([&](const MergeSymbol&) { ++left; });
  EXPECT_EQ(left, 1u);
  EXPECT_LE(rated, 3 * kSymbols);
}

}  // namespace
}  // namespace tierkv
