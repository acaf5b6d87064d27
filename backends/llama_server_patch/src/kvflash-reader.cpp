#include "kvflash-reader.h"

#include <algorithm>
#include <limits>
#include <string>

static constexpr int64_t NEVER_US = std::numeric_limits<int64_t>::max();

namespace {

// The bytes of pages, without control tokens and media.
struct page_text {
    std::string text;
    std::vector<size_t> page_end;

    page_text(const llama_vocab * vocab, const int32_t * tokens, size_t n_pages, size_t tau) {
        char piece[256];
        for (size_t page = 0; page < n_pages; page++) {
            for (size_t i = page * tau; i < (page + 1) * tau; i++) {
                const int32_t n = tokens[i] < 0 ? 0 : // media
                    llama_token_to_piece(vocab, tokens[i], piece, sizeof(piece), 0, false);
                text.append(piece, std::max(0, n));
            }
            page_end.push_back(text.size());
        }
    }

    bool is_blank() const { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

    size_t page_begin(size_t page) const { return page == 0 ? 0 : page_end[page - 1]; }
};

class reader : public kvflash_reader {
public:
    reader(std::unique_ptr<pflash_attention_scorer> pages, std::unique_ptr<pflash_attention_scorer> questions, const llama_vocab * vocab) :
        pages(std::move(pages)), questions(std::move(questions)), vocab(vocab) {}

    kvflash_page_keys keys(const int32_t * tokens, size_t n_pages, size_t tau, const std::function<bool()> & stopping) override {
        const page_text read(vocab, tokens, n_pages, tau);
        kvflash_page_keys found(n_pages);
        if (read.is_blank()) {
            return found;
        }
        const auto means = pages->mean_keys(read.text, read.page_end, NEVER_US, stopping);
        const size_t n = means.values.size() / n_pages;
        for (size_t i = 0; i < n_pages; i++) {
            if (read.page_end[i] > read.page_begin(i)) {
                const auto begin = means.values.begin() + i * n;
                found[i] = std::make_shared<const std::vector<float>>(begin, begin + n);
            }
        }
        return found;
    }

    std::vector<float> attention(
            const int32_t * tokens, size_t n_pages, size_t tau, const std::string & question, const std::function<bool()> & stopping) override {
        const page_text read(vocab, tokens, n_pages, tau);
        std::vector<float> best(n_pages);
        if (read.is_blank()) {
            return best;
        }
        const auto scores = pages->score(read.text, question, NEVER_US, stopping);
        size_t begin = 0;
        for (size_t i = 0, page = 0; i < scores.score.size(); i++) {
            while (page + 1 < n_pages && read.page_end[page] <= begin) {
                page++;
            }
            best[page] = std::max(best[page], scores.score[i]);
            begin = scores.token_end[i];
        }
        return best;
    }

    pflash_vectors queries(const std::string & question, pflash_vectors & plain) override {
        return questions->queries(question, plain, NEVER_US, nullptr);
    }

private:
    const std::unique_ptr<pflash_attention_scorer> pages, questions;
    const llama_vocab * const vocab;
};

} // namespace

std::unique_ptr<kvflash_reader> kvflash_make_reader(
        std::unique_ptr<pflash_attention_scorer> pages, std::unique_ptr<pflash_attention_scorer> questions, const llama_vocab * vocab) {
    return std::make_unique<reader>(std::move(pages), std::move(questions), vocab);
}
