// The plan as a picture, from top to bottom: the context's tokens by tier, the process's RAM, and
// the bits of every KV head's K and V. Both bars are to scale.
#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "cli/plan_report.h"

namespace tierkv::cli {
namespace {

constexpr double kWidth = 960, kLeft = 40, kRight = 920;
constexpr const char* kGrey = "#7d8590";
constexpr const char* kExact = "#2f9e5b";
constexpr const char* kTier1 = "#3f83e0";
constexpr const char* kTier2 = "#9b6bdf";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

struct TextStyle {
  const char* colour = kGrey;
  const char* anchor = "start";
  int size = 12;
  bool bold = false;
};

class Svg {
 public:
  void text(double x, double y, const std::string& words, const TextStyle& style = {}) {
    body_ += format(
        "<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\" text-anchor=\"%s\" font-size=\"%d\"%s>%s</text>\n",
        x, y, style.colour, style.anchor, style.size, style.bold ? " font-weight=\"bold\"" : "",
        escaped(words).c_str());
  }
  void rect(double x, double y, double width, double height, const char* colour,
            double opacity = 1) {
    body_ += format(
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" "
        "fill-opacity=\"%.2f\"/>\n",
        x, y, width, height, colour, opacity);
  }
  void line(double x1, double y1, double x2, double y2, const char* colour) {
    body_ += format(
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
        "stroke-opacity=\"0.7\"/>\n",
        x1, y1, x2, y2, colour);
  }
  std::string finish(double height, const std::string& title) const {
    return format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
               "font-family=\"sans-serif\">\n<title>",
               kWidth, height) +
           escaped(title) + "</title>\n" + body_ + "</svg>\n";
  }

 private:
  std::string body_;
};

// A piece of a bar, and what is written under it.
struct Piece {
  double amount = 0;
  const char* colour = kGrey;
  double opacity = 1;
  std::vector<std::string> label;  // the first line stands out
  double label_width = 100;
};

// Labels' left edges: as near to their pieces' middles as possible, none over another.
std::vector<double> place_labels(const std::vector<Piece>& pieces,
                                 const std::vector<double>& middles) {
  std::vector<double> left;
  double free = kLeft;
  for (size_t i = 0; i < pieces.size(); ++i) {
    left.push_back(std::max(free, middles[i] - pieces[i].label_width / 2));
    free = left[i] + pieces[i].label_width;
  }
  double limit = kRight;
  for (size_t i = pieces.size(); i-- > 0;) {
    left[i] = std::min(left[i], limit - pieces[i].label_width);
    limit = left[i];
  }
  return left;
}

// Returns where the next thing may begin.
double draw_bar(Svg& svg, double y, double height, const std::vector<Piece>& pieces) {
  double total = 0;
  for (const Piece& piece : pieces) total += piece.amount;
  std::vector<double> middles;
  double x = kLeft;
  for (const Piece& piece : pieces) {
    const double width = total > 0 ? piece.amount / total * (kRight - kLeft) : 0;
    const double gap = width > 3 ? 1 : 0;
    svg.rect(x, y, std::max(1.0, width - gap), height, piece.colour, piece.opacity);
    middles.push_back(x + width / 2);
    x += width;
  }
  const std::vector<double> left = place_labels(pieces, middles);
  const double label_y = y + height + 26;
  size_t lines = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const double middle = left[i] + pieces[i].label_width / 2;
    svg.line(middles[i], y + height + 2, middle, label_y - 12, pieces[i].colour);
    for (size_t row = 0; row < pieces[i].label.size(); ++row) {
      svg.text(
          middle, label_y + 15 * static_cast<double>(row), pieces[i].label[row],
          {.colour = row == 0 ? pieces[i].colour : kGrey, .anchor = "middle", .bold = row == 0});
    }
    lines = std::max(lines, pieces[i].label.size());
  }
  return label_y + 15 * static_cast<double>(lines);
}

const char* part_colour(PartKind kind) {
  if (kind == PartKind::kCompressed) return kTier1;
  return kind == PartKind::kOffloaded ? kTier2 : kExact;
}

std::vector<Piece> context_pieces(const Forecast& f) {
  std::vector<Piece> pieces;
  for (const ContextPart& part : context_parts(f.input, f.plan)) {
    const double share =
        100 * static_cast<double>(part.n_tokens) / static_cast<double>(f.input.total_tokens);
    const char* where = part.kind == PartKind::kOffloaded ? "on flash" : "in RAM";
    pieces.push_back({.amount = static_cast<double>(part.n_tokens),
                      .colour = part_colour(part.kind),
                      .label = {part_name(part.kind),
                                format("%s tokens, %.1f %%", grouped(part.n_tokens).c_str(), share),
                                format_size(part.bytes) + " " + where},
                      .label_width = 165});
  }
  return pieces;
}

uint64_t tier_bytes(const std::vector<ContextPart>& parts, bool compressed) {
  uint64_t bytes = 0;
  for (const ContextPart& part : parts) {
    if (part.kind == PartKind::kOffloaded) continue;
    if ((part.kind == PartKind::kCompressed) == compressed) bytes += part.bytes;
  }
  return bytes;
}

std::vector<Piece> ram_pieces(const Forecast& f) {
  std::vector<Piece> pieces;
  const auto add = [&](const char* name, uint64_t bytes, const char* colour, double opacity) {
    if (bytes == 0) return;
    pieces.push_back({.amount = static_cast<double>(bytes),
                      .colour = colour,
                      .opacity = opacity,
                      .label = {name, format_size(bytes)}});
  };
  const std::vector<ContextPart> parts = context_parts(f.input, f.plan);
  const uint64_t exact = tier_bytes(parts, false), coded = tier_bytes(parts, true);
  add("weights", f.weight_bytes, kGrey, 0.9);
  add("the process", f.overhead_bytes, kGrey, 0.7);
  add("scratch", f.scratch_bytes, kGrey, 0.5);
  add("Tier-0", exact, kExact, 1);
  add("Tier-1", coded, kTier1, 1);
  // Staging, an extent being filled, a spare page, window-only layers.
  const uint64_t other = f.plan.ram_bytes - std::min(f.plan.ram_bytes, exact + coded);
  add("other KV", other, kTier2, 0.7);
  if (f.ram_limit != MemoryBudget::kUnlimited) {
    add("free", f.ram_limit - std::min(f.ram_limit, f.ram_bytes()), kGrey, 0.2);
  }
  return pieces;
}

struct Shade {
  int bits;
  const char* colour;
};
constexpr Shade kShades[] = {{16, kExact},   {8, "#173f73"}, {6, "#2a66b5"}, {5, "#5fa8d3"},
                             {4, "#d9a520"}, {3, "#e07b39"}, {2, "#c83e4d"}};

// The colour of the most bits that are not more.
const char* shade(double bits) {
  for (const Shade& s : kShades) {
    if (s.bits <= bits) return s.colour;
  }
  return std::rbegin(kShades)->colour;
}

// Cells' sizes, so that any model's heads fit.
struct Grid {
  double x = 0, y = 0, cell_width = 0, half_height = 0;
  double row_height() const { return 2 * half_height + 4; }
};

void draw_half(Svg& svg, const Grid& grid, double x, double y, double bits,
               const std::string& label) {
  svg.rect(x, y, grid.cell_width - 2, grid.half_height - (grid.half_height > 6 ? 0.5 : 0),
           shade(bits));
  if (grid.cell_width < 14 || grid.half_height < 10) return;
  svg.text(x + (grid.cell_width - 2) / 2, y + grid.half_height / 2 + 3.5, label,
           {.colour = "#ffffff", .anchor = "middle", .size = 10});
}

void draw_cell(Svg& svg, const Grid& grid, size_t layer, int head, CodecId codec) {
  const double x = grid.x + static_cast<double>(layer) * grid.cell_width;
  const double y = grid.y + head * grid.row_height();
  const double below = y + grid.half_height;
  if (codec.is_low_rank()) {  // its name over both halves, in the shade of its bits
    const double bits = 1e-3 * codec.rank_permille * codec.latent_bits;
    draw_half(svg, grid, x, y, bits, "lr");
    draw_half(svg, grid, x, below, bits, codec_name(codec).substr(2));
    return;
  }
  const bool exact = codec == CodecId{};
  const int k = exact ? 16 : codec.k_bits, v = exact ? 16 : codec.v_bits;
  draw_half(svg, grid, x, y, k, std::to_string(k));
  draw_half(svg, grid, x, below, v, std::to_string(v));
}

void draw_legend(Svg& svg, double x, double y) {
  svg.text(x, y + 2, "bits of K (upper half)");
  svg.text(x, y + 17, "and of V (lower half)");
  y += 27;
  for (size_t i = 0; i < std::size(kShades); ++i) {
    const double column = x + 72 * static_cast<double>(i / 4),
                 row = y + 18 * static_cast<double>(i % 4);
    svg.rect(column, row, 13, 13, kShades[i].colour);
    svg.text(column + 19, row + 11,
             kShades[i].bits == 16 ? "float16" : std::to_string(kShades[i].bits));
  }
}

Grid make_grid(size_t n_layers, int n_heads, double y) {
  Grid grid;
  grid.x = kLeft + 62;
  grid.y = y;
  grid.cell_width = std::min(40.0, (kRight - 170 - grid.x) / static_cast<double>(n_layers));
  grid.half_height = std::clamp(110.0 / n_heads, 5.0, 15.0);
  return grid;
}

void draw_grid_axes(Svg& svg, const KvLayout& layout, const Grid& grid, int n_heads) {
  for (int head = 0; head < n_heads; ++head) {
    svg.text(grid.x - 8, grid.y + head * grid.row_height() + grid.half_height + 4,
             "KV head " + std::to_string(head), {.anchor = "end", .size = 11});
  }
  const double below = grid.y + n_heads * grid.row_height() + 12;
  const int step = grid.cell_width < 18 ? 4 : 2;
  for (size_t i = 0; i < layout.full_layers.size(); ++i) {
    if (layout.full_layers.size() > 12 && i % static_cast<size_t>(step) != 0) continue;
    svg.text(grid.x + (static_cast<double>(i) + 0.5) * grid.cell_width - 1, below,
             std::to_string(layout.full_layers[i]), {.anchor = "middle", .size = 11});
  }
  svg.text(grid.x - 8, below, "layer", {.anchor = "end", .size = 11});
}

double draw_codecs(Svg& svg, double y, const KvLayout& layout, const Forecast& f) {
  if (f.plan.tier1_pages == 0) {
    svg.text(kLeft, y, "Tier-1 is empty: nothing is compressed", {.size = 13, .bold = true});
    return y + 10;
  }
  svg.text(kLeft, y,
           format("Tier-1's codecs, %.2f bits an element on average",
                  tier1_bits_per_element(f.input, f.plan)),
           {.size = 13, .bold = true});
  const std::vector<std::vector<CodecId>> codecs = codecs_by_layer(layout, f.plan);
  size_t most_heads = 0;
  for (const auto& layer : codecs) most_heads = std::max(most_heads, layer.size());
  const int n_heads = static_cast<int>(most_heads);
  const Grid grid = make_grid(codecs.size(), n_heads, y + 14);
  for (size_t layer = 0; layer < codecs.size(); ++layer) {
    for (size_t head = 0; head < codecs[layer].size(); ++head) {
      draw_cell(svg, grid, layer, static_cast<int>(head), codecs[layer][head]);
    }
  }
  draw_grid_axes(svg, layout, grid, n_heads);
  const double right = grid.x + static_cast<double>(codecs.size()) * grid.cell_width;
  draw_legend(svg, right + 30, y + 22);
  return std::max(grid.y + n_heads * grid.row_height() + 16, y + 125);
}

std::string ram_title(const Forecast& f) {
  std::string text =
      format("RAM of the process: %.1f MiB", static_cast<double>(f.ram_bytes()) / (1 << 20));
  if (f.ram_limit != MemoryBudget::kUnlimited) text += " of " + format_size_argument(f.ram_limit);
  return text;
}

}  // namespace

std::string plan_svg(const PlanView& view) {
  const Forecast& f = view.study.plan;
  const std::string title = request_title(view);
  Svg svg;
  svg.text(kLeft, 24, title, {.size = 14, .bold = true});
  svg.text(kLeft, 44,
           "predicted: " + time_text(f.plan.seconds_per_token) + " a token, KLD " +
               kld_text(f.plan.kld) + " nats, allowed " + kld_text(f.input.kld_budget));
  double y = 72;
  svg.text(kLeft, y, "the context: " + grouped(f.input.total_tokens) + " tokens",
           {.size = 13, .bold = true});
  y = draw_bar(svg, y + 9, 30, context_pieces(f));
  svg.text(kLeft, y + 14, ram_title(f), {.size = 13, .bold = true});
  y = draw_bar(svg, y + 23, 20, ram_pieces(f));
  y = draw_codecs(svg, y + 14, view.engine.kv_layout(), f);
  return svg.finish(y + 12, title);
}

}  // namespace tierkv::cli
