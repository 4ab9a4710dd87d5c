/* Readers type questions. Sphinx's search shows only pages that have every word of them; this shows the pages that have most,
   first those with the rare words, and with words in their headings. Words of the index and of the question are stems. */
"use strict";

Search.performTermsSearch = (searchTerms) => {
  const IN_TEXT = 1;
  const IN_HEADING = 3;
  const IN_TITLE = 5;
  const BEGINNING = 0.5; // of what a whole word counts, where the index has only longer words that begin like it
  const OF_INTERNALS = 0.5; // of what a page for users counts
  const WORTH_SHOWING = 0.3; // of what the best page has

  const { terms, titleterms, titles, filenames, docnames } = Search._index;
  const stemmer = new Stemmer();
  const ownWords = titles.map((title) => new Set(splitQuery(title.toLowerCase()).map((word) => stemmer.stemWord(word))));

  const worth = (file) => (docnames[file].startsWith("internals/") ? OF_INTERNALS : 1);
  const filesOf = (index, word) => (Object.hasOwn(index, word) ? [index[word]].flat() : []);
  const keep = (found, files, weight) => files.forEach((file) => found.set(file, Math.max(weight, found.get(file) ?? 0)));

  /* The pages that have a word: file -> weight. */
  const pagesWith = (word) => {
    const found = new Map();
    keep(found, filesOf(terms, word), IN_TEXT);
    keep(found, filesOf(titleterms, word), IN_HEADING);
    keep(found, [...found.keys()].filter((file) => ownWords[file].has(word)), IN_TITLE);
    if (found.size === 0 && word.length > 2) {
      for (const [index, weight] of [[terms, IN_TEXT], [titleterms, IN_HEADING]]) {
        const longer = Object.keys(index).filter((other) => other.startsWith(word));
        longer.forEach((other) => keep(found, filesOf(index, other), weight * BEGINNING));
      }
    }
    return found;
  };

  const sums = new Map();
  searchTerms.forEach((word) => {
    const found = pagesWith(word);
    const rarity = Math.log(1 + docnames.length / Math.max(found.size, 1));
    found.forEach((weight, file) => sums.set(file, (sums.get(file) ?? 0) + weight * rarity * worth(file)));
  });

  const least = WORTH_SHOWING * Math.max(0, ...sums.values());
  return [...sums]
    .filter(([, sum]) => sum >= least)
    .map(([file, sum]) => [docnames[file], titles[file], "", null, sum, filenames[file], SearchResultKind.text]);
};
