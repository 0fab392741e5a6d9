// A histogram of packet delays in which recent packets count most, with one quantile ready to read. Pure.

/// A histogram that forgets: each entry weighs a little more than the one before it, so nothing has to be scaled down but
/// once in a long while. The quantile moves with the entries; an entry costs no scan.
struct DelayHistogram {
    /// Weights are scaled back when the newest has grown to this.
    private static let unitMax = 1e9

    /// The quantile that is followed (0…1); a new one counts from the next entry on.
    var quantile: Double
    private var weights: [Double]
    private var unit = 1.0
    private var total = 0.0
    /// The weight below `index`.
    private var below = 0.0
    /// The bin in which the quantile lies.
    private(set) var index = 0

    /// An empty histogram of `bins` bins that follows `quantile` (0…1).
    init(bins: Int, quantile: Double) {
        self.quantile = quantile
        weights = [Double](repeating: 0, count: max(1, bins))
    }

    var isEmpty: Bool { total == 0 }
    /// The last bin.
    var last: Int { weights.count - 1 }
    /// The weight of all entries, in entries of the present weight.
    var weight: Double { total / unit }

    /// An entry in `bin` (beyond the last: in the last); `share` is how much of what was there it makes forgotten.
    mutating func add(_ bin: Int, forgetting share: Double) {
        unit *= 1 + share
        // An entry weighs what it makes forgotten: long packets more than short ones.
        let weight = unit * share
        let bin = min(max(0, bin), last)
        weights[bin] += weight
        total += weight
        if bin < index { below += weight }
        let wanted = quantile * total
        while index < last, below + weights[index] < wanted {
            below += weights[index]
            index += 1
        }
        while index > 0, below >= wanted {
            index -= 1
            below -= weights[index]
        }
        if unit > Self.unitMax { rescale() }
    }

    /// The share of entries in bins below `bin`. Looks at every bin between that and the quantile's.
    func share(below bin: Int) -> Double {
        guard total > 0 else { return 0 }
        var sum = below
        var place = index
        while place < min(bin, weights.count) {
            sum += weights[place]
            place += 1
        }
        while place > max(0, bin) {
            place -= 1
            sum -= weights[place]
        }
        return min(1, max(0, sum / total))
    }

    private mutating func rescale() {
        total = 0
        below = 0
        for bin in weights.indices {
            weights[bin] /= unit
            total += weights[bin]
            if bin < index { below += weights[bin] }
        }
        unit = 1
    }
}
