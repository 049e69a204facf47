// What a run did, for people and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/session.h"

namespace tierkv::cli {

// "the profile FILE", or what plans without one rest on.
std::string accuracy_text(const AccuracyChoice& accuracy);

nlohmann::json report_json(Engine& engine, const Session& session, const Generation& generation);

// The closing summary: plan, bytes in each tier, speed, peak RSS.
std::string report_text(Engine& engine, const Session& session, const Generation& generation);

// Says on standard error why a session was not saved to its end, if it was not.
void warn_of_saving(const Session& session);

}  // namespace tierkv::cli
