// Whether a module still is what it was: for many (dict, key, object) triples, is dict[key] still that object? The same
// for the items of lists.
//
// In Python the same poll takes 30 us for ResNet-50 in a loop, and 200 us after a forward pass, when none of the dicts
// is in a cache any more. Here the lines are asked for first, all at once, and then compared. Only public functions of
// Python are called, found at run time, so no Python header is needed; the offsets steer prefetching and nothing else.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

using Lookup = void* (*)(void* dict, void* key);
using Size = intptr_t (*)(void* container);
using Item = void* (*)(void* list, intptr_t index);

// PyDictObject keeps its table of keys, and of values where they are apart, behind these offsets.
constexpr size_t keys_of_dict = 32;
constexpr size_t values_of_dict = 40;
// PyListObject keeps its items behind this one.
constexpr size_t items_of_list = 24;

struct Entry {
  void* key;
  void* object;
};

struct Dict {
  void* dict;
  intptr_t size;
  std::vector<Entry> entries;
};

struct List {
  void* list;
  std::vector<Entry> entries;
};

struct Watch {
  Lookup lookup;
  Size dict_size;
  Item item;
  Size list_size;
  std::vector<Dict> dicts;
  std::vector<List> lists;
};

const char* field(const void* object, size_t offset) {
  return *reinterpret_cast<const char* const*>(static_cast<const char*>(object) + offset);
}

}  // namespace

// Null where Python's functions are not visible to this library.
extern "C" void* daceml_watch_new() {
  auto lookup = reinterpret_cast<Lookup>(dlsym(RTLD_DEFAULT, "PyDict_GetItemWithError"));
  auto dict_size = reinterpret_cast<Size>(dlsym(RTLD_DEFAULT, "PyDict_Size"));
  auto item = reinterpret_cast<Item>(dlsym(RTLD_DEFAULT, "PyList_GetItem"));
  auto list_size = reinterpret_cast<Size>(dlsym(RTLD_DEFAULT, "PyList_Size"));
  if (lookup == nullptr || dict_size == nullptr || item == nullptr || list_size == nullptr) return nullptr;
  return new Watch{lookup, dict_size, item, list_size, {}, {}};
}

extern "C" void daceml_watch_delete(void* watch) { delete static_cast<Watch*>(watch); }

// Watches one dict, which has `size` keys. The caller keeps dict, keys and objects alive.
extern "C" void daceml_watch_dict(void* watch, void* dict, intptr_t size) {
  static_cast<Watch*>(watch)->dicts.push_back({dict, size, {}});
}

extern "C" void daceml_watch_list(void* watch, void* list) {
  static_cast<Watch*>(watch)->lists.push_back({list, {}});
}

// Expects `object` under `key` in the dict watched last, or next in the list watched last; dicts come before lists.
extern "C" void daceml_watch_entry(void* watch, void* key, void* object) {
  Watch& w = *static_cast<Watch*>(watch);
  (w.lists.empty() ? w.dicts.back().entries : w.lists.back().entries).push_back({key, object});
}

// The caller holds the GIL.
extern "C" int32_t daceml_watch_unchanged(void* watch) {
  const Watch& w = *static_cast<Watch*>(watch);
  for (const Dict& d : w.dicts) __builtin_prefetch(static_cast<const char*>(d.dict) + keys_of_dict);
  for (const List& l : w.lists) __builtin_prefetch(static_cast<const char*>(l.list) + items_of_list);
  for (const Dict& d : w.dicts) {
    const char* keys = field(d.dict, keys_of_dict);
    for (size_t line = 0; line < 192; line += 64) __builtin_prefetch(keys + line);
    __builtin_prefetch(field(d.dict, values_of_dict));
  }
  for (const List& l : w.lists) __builtin_prefetch(field(l.list, items_of_list));
  for (const Dict& d : w.dicts) {
    if (w.dict_size(d.dict) != d.size) return 0;
    for (const Entry& e : d.entries) {
      if (w.lookup(d.dict, e.key) != e.object) return 0;
    }
  }
  for (const List& l : w.lists) {
    if (w.list_size(l.list) != static_cast<intptr_t>(l.entries.size())) return 0;
    for (size_t i = 0; i < l.entries.size(); ++i) {
      if (w.item(l.list, static_cast<intptr_t>(i)) != l.entries[i].object) return 0;
    }
  }
  return 1;
}
