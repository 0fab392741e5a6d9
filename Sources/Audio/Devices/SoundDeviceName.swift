// The name of a sound card's device, as ALSA's `hw` and `plughw` have it. Pure.

/// Which device of which card a name means: `plughw:CARD=Headset`, `hw:1,0`, `plughw:Headset,0`.
struct SoundDeviceName: Equatable {
    /// The card's id, or its number as text.
    var card: String
    /// The device of the card.
    var device = 0

    init(card: String, device: Int = 0) {
        self.card = card
        self.device = device
    }

    /// Reads `name`; nil when it means none of a card's devices directly.
    init?(_ name: String) {
        let parts = name.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, ["hw", "plughw"].contains(parts[0]) else { return nil }
        var card: Substring?
        var device = 0
        for (index, argument) in parts[1].split(separator: ",", omittingEmptySubsequences: false).enumerated() {
            let pair = argument.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let key = pair.count == 2 ? pair[0] : index == 0 ? "CARD" : index == 1 ? "DEV" : ""
            switch (key, pair[pair.count - 1]) {
            case ("CARD", let text): card = text
            case ("DEV", let text):
                guard let number = Int(text) else { return nil }
                device = number
            default: break
            }
        }
        guard let card, !card.isEmpty else { return nil }
        self.init(card: String(card), device: device)
    }

    /// Whether it means the card by a number, which is another one after the next plugging.
    var isNumbered: Bool { Int(card) != nil }
}
