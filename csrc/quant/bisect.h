// A Search for processors that permute eight floats as fast as they add them. Included after pick_eight(table, I),
// table[index] for index 0 .. 7.

struct Search {
    explicit Search(const Levels &levels) : middle(all(levels.borders[8])) {
        for (int i = 0; i < 8; ++i) {
            quarters[i] = levels.borders[i % 2 * 8 + 4];
            eighths[i] = levels.borders[i % 4 * 4 + 2];
            last[i] = levels.borders[i * 2 + 1];
        }
    }
    I code(F u) const {
        I code = (u >= middle) & all(1);
        code = code + code - (u >= pick_eight(quarters, code));
        code = code + code - (u >= pick_eight(eighths, code));
        code = code + code - (u >= pick_eight(last, code));
        return code;
    }

  private:
    F middle;
    float quarters[8], eighths[8], last[8];
};
