#include "kv/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "kv/flash_store.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define TIERKV_CRC_TARGET [[gnu::target("sse4.2")]]
#define TIERKV_CRC_U8 _mm_crc32_u8
#define TIERKV_CRC_U64 _mm_crc32_u64
#elif defined(__aarch64__) && defined(__linux__)
#include <arm_acle.h>
#include <sys/auxv.h>
#if defined(__clang__)  // whose arm_acle.h hides the intrinsics unless the whole file may use them
#define TIERKV_CRC_TARGET [[gnu::target("crc")]]
#define TIERKV_CRC_U8 __builtin_arm_crc32cb
#define TIERKV_CRC_U64 __builtin_arm_crc32cd
#else
#define TIERKV_CRC_TARGET [[gnu::target("+crc")]]
#define TIERKV_CRC_U8 __crc32cb
#define TIERKV_CRC_U64 __crc32cd
#endif
#endif

namespace tierkv {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;

// kTables[n][b]: the checksum of byte b followed by n zero bytes, so that eight bytes can be looked
// up at once ("slicing by 8").
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t n = 1; n < tables.size(); ++n) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[n - 1][byte];
      tables[n][byte] = crc >> 8 ^ tables[0][crc & 255];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

// What n zero bytes, a power of two, do to a checksum: linear in its bits, so a table for each of
// its bytes.
class ZeroBytes {
 public:
  explicit constexpr ZeroBytes(size_t n) {
    std::array<uint32_t, 32> images{};  // what one zero byte makes of each bit, then two, four, ...
    for (int bit = 0; bit < 32; ++bit) {
      const uint32_t crc = uint32_t{1} << bit;
      images[bit] = crc >> 8 ^ kTables[0][crc & 255];
    }
    for (; n > 1; n /= 2) {
      std::array<uint32_t, 32> twice{};
      for (int bit = 0; bit < 32; ++bit) {
        for (int i = 0; i < 32; ++i) {
          if ((images[bit] >> i & 1) != 0) twice[bit] ^= images[i];
        }
      }
      images = twice;
    }
    for (int bit = 0; bit < 32; ++bit) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        if ((byte >> bit % 8 & 1) != 0) tables_[bit / 8][byte] ^= images[bit];
      }
    }
  }
  uint32_t operator()(uint32_t crc) const {
    return tables_[0][crc & 255] ^ tables_[1][crc >> 8 & 255] ^ tables_[2][crc >> 16 & 255] ^
           tables_[3][crc >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> tables_{};
};

static_assert(std::endian::native == std::endian::little);

uint64_t load_u64(const std::byte* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

uint32_t crc32c_table(std::span<const std::byte> data, uint32_t crc) {
  crc = ~crc;
  for (; data.size() >= 8; data = data.subspan(8)) {
    const uint64_t x = load_u64(data.data()) ^ crc;
    crc = 0;
    for (int i = 0; i < 8; ++i) crc ^= kTables[7 - i][x >> 8 * i & 255];
  }
  for (const std::byte byte : data) {
    crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 255];
  }
  return ~crc;
}

#ifdef TIERKV_CRC_TARGET

namespace {

// The instruction takes three cycles but one can start in each, so three checksums are computed
// side by side, of three lanes of kLane bytes that follow each other, and joined. Returns what is
// left.
template <size_t kLane>
TIERKV_CRC_TARGET std::span<const std::byte> take_lanes(std::span<const std::byte> data,
                                                        uint32_t& crc) {
  static_assert(std::has_single_bit(kLane));
  static constexpr ZeroBytes kShift(kLane);
  for (; data.size() >= 3 * kLane; data = data.subspan(3 * kLane)) {
    const std::byte* const at = data.data();
    auto a = decltype(TIERKV_CRC_U64(0, 0)){crc}, b = decltype(a){0}, c = decltype(a){0};
    for (size_t i = 0; i < kLane; i += 8) {
      a = TIERKV_CRC_U64(a, load_u64(at + i));
      b = TIERKV_CRC_U64(b, load_u64(at + kLane + i));
      c = TIERKV_CRC_U64(c, load_u64(at + 2 * kLane + i));
    }
    crc = kShift(kShift(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b)) ^
          static_cast<uint32_t>(c);
  }
  return data;
}

}  // namespace

TIERKV_CRC_TARGET uint32_t crc32c_instruction(std::span<const std::byte> data, uint32_t crc) {
  crc = ~crc;
  data = take_lanes<4096>(data, crc);
  data = take_lanes<256>(data, crc);
  for (; data.size() >= 8; data = data.subspan(8)) {
    crc = static_cast<uint32_t>(TIERKV_CRC_U64(crc, load_u64(data.data())));
  }
  for (const std::byte byte : data) crc = TIERKV_CRC_U8(crc, static_cast<uint8_t>(byte));
  return ~crc;
}

#if defined(__x86_64__)
bool crc32c_has_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
bool crc32c_has_instruction() {
  constexpr unsigned long kHwcapCrc32 = 1ul << 7;  // HWCAP_CRC32 of <asm/hwcap.h>
  return (getauxval(AT_HWCAP) & kHwcapCrc32) != 0;
}
#endif

#else

bool crc32c_has_instruction() { return false; }
uint32_t crc32c_instruction(std::span<const std::byte> data, uint32_t crc) {
  return crc32c_table(data, crc);
}

#endif

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) {
  return crc32c_has_instruction() ? crc32c_instruction(data, crc) : crc32c_table(data, crc);
}

}  // namespace tierkv
