// Marks what liblazuli.so exports; everything else is hidden.
#pragma once

#if defined(_WIN32)
#define LAZULI_API
#else
#define LAZULI_API __attribute__((visibility("default")))
#endif
