// Ends an answer where one of some texts comes up in it: a line's end, "Question:". The text may be
// spread over tokens, so what could be its beginning is held back until it is known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tierkv {

class StopStrings {
 public:
  // Empty ones are left out.
  explicit StopStrings(std::vector<std::string> texts);

  // What of the answer may be shown once `text` has been added to it: what comes before the first
  // stop string, which then is found(). After that nothing.
  std::string push(std::string_view text);
  // What was held back, when the answer ends otherwise.
  std::string flush();
  bool found() const { return found_; }

 private:
  std::vector<std::string> texts_;
  std::string held_;  // the beginning of a stop string, perhaps
  bool found_ = false;
};

}  // namespace tierkv
