#pragma once

#include "kvflash-ranker.h"
#include "pflash-scorer.h"

#include "llama.h"

#include <memory>

// Reads pages and questions with the scorer of PFlash. The keys of a model that answers lie in its own cache, and
// its queries in its own graph: to read either would slow decoding down.

// `pages` and `questions` are scorers of one model, so that neither waits for the other. `vocab` is that of the
// pages' tokens, and has to stay until the reader is gone.
std::unique_ptr<kvflash_reader> kvflash_make_reader(
        std::unique_ptr<pflash_attention_scorer> pages, std::unique_ptr<pflash_attention_scorer> questions, const llama_vocab * vocab);
