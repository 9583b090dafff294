# Ranks mappings by what was measured: from lines `LABEL|TABLE|WHICH|less or more`, a row each that says how far every
# mapping is behind the fastest, and a last one with the most that each is behind anywhere.
#
#   awk -v kept=DIR -f ranking.awk LINES
#
# TABLE is DIR/STEP/plots/FIGURE.md, named STEP/FIGURE: a table with mappings for rows, where WHICH names a column, or
# for columns, where it names a row. WHICH of * takes all of them, each mapping where it is furthest behind.
# *less* and *more* say what is better.

BEGIN {
    FS = "|"
    count = split("hashfs hashfs-8 hashfs-1 radix extent extent-cached cuckoo level", mappings, " ")
    for (m = 1; m <= count; m++) is_mapping[mappings[m]] = 1
    printf "| |"
    for (m = 1; m <= count; m++) printf " `%s` |", mappings[m]
    printf "\n|---|"
    for (m = 1; m <= count; m++) printf "---:|"
    printf "\n"
}

# The words of a cell without blanks around them.
function trimmed(cell) {
    gsub(/^ +| +$/, "", cell)
    return cell
}

# Reads a table into found[case, mapping], and what cases there are into at_case; returns how many.
function read_table(file, which,    line, n, cells, header, columns, i, by_row, kept_cases) {
    split("", found)
    split("", at_case)
    if ((getline line < file) <= 0) {
        printf "ranking: no table %s\n", file > "/dev/stderr"
        exit 1
    }
    columns = split(line, header, "|") - 1
    for (i = 3; i <= columns; i++) if (trimmed(header[i]) in is_mapping) by_row = 1
    getline line < file
    while ((getline line < file) > 0) {
        n = split(line, cells, "|")
        for (i = 3; i <= columns && i < n; i++)
            keep(by_row, which, trimmed(cells[2]), trimmed(header[i]), cells[i] + 0)
    }
    close(file)
    for (i in at_case) kept_cases++
    return kept_cases
}

# Keeps one number, if it is one of those asked for.
function keep(by_row, which, row, column, value,    name, mapping) {
    name = by_row ? row : column
    mapping = by_row ? column : row
    if ((which != "*" && name != which) || !(mapping in is_mapping) || value <= 0) return
    found[name, mapping] = value
    at_case[name] = 1
}

# How far behind the fastest of this case a mapping is; 0 if it was not measured.
function behind(name, mapping, better,    m, best, value) {
    if (!((name, mapping) in found)) return 0
    for (m = 1; m <= count; m++) {
        if (!((name, mappings[m]) in found)) continue
        value = found[name, mappings[m]]
        if (!best || (better == "less" ? value < best : value > best)) best = value
    }
    return better == "less" ? found[name, mapping] / best : best / found[name, mapping]
}

NF == 4 {
    split($2, table, "/")
    if (!read_table(kept "/" table[1] "/plots/" table[2] ".md", $3)) {
        printf "ranking: %s has no %s\n", $2, $3 > "/dev/stderr"
        failed = 1
        exit 1
    }
    printf "| %s |", $1
    for (m = 1; m <= count; m++) {
        worst = 0
        for (name in at_case) {
            ratio = behind(name, mappings[m], $4)
            if (ratio > worst) worst = ratio
        }
        if (worst > most[m]) most[m] = worst
        printf worst ? " %.2f |" : " |", worst
    }
    printf "\n"
}

END {
    if (failed) exit 1
    printf "| **most behind** |"
    for (m = 1; m <= count; m++) printf " **%.2f** |", most[m]
    printf "\n"
}
