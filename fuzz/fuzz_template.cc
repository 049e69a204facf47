// libFuzzer: any bytes as a chat template, parsed and rendered under small limits. It must come
// back, with text or with an error that names a line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tokenizer/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tierkv::ChatTemplateLimits limits;
  limits.max_steps = 20'000;
  limits.max_depth = 60;
  limits.max_output_bytes = 1 << 20;
  limits.max_source_bytes = 1 << 16;
  auto parsed = tierkv::ChatTemplate::parse(std::string(data, data + size), limits);
  if (!parsed.ok()) {
    if (parsed.status().code() == tierkv::StatusCode::kInternal) std::abort();
    return 0;
  }
  const auto text = parsed->render({{"system", "Be \xc3\xa9 brief. "},
                                    {"user", "Hi\n<think>x</think> \xf0\x9f\x99\x82"},
                                    {"assistant", "\xff ok"}},
                                   true, "<s>", "</s>");
  if (!text.ok() && text.status().code() == tierkv::StatusCode::kInternal) std::abort();
  if (text.ok() && text->size() > static_cast<size_t>(limits.max_output_bytes)) std::abort();
  return 0;
}
