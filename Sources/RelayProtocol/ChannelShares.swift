// The shares of a cluster's channels. Each share is served by one of its relays at a time.

extension ChannelID {
    /// The number of shares of each cluster. Relays of a cluster have to agree on it, so it does not change.
    public static let shareCount = 64

    /// The number of the share that the channel is in, of `count`: FNV-1a (64 bits) of its bytes, folded.
    public func share(of count: Int = shareCount) -> Int {
        let hash = bytes.reduce(0xCBF2_9CE4_8422_2325 as UInt64) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return Int((hash ^ hash >> 32) % UInt64(max(1, count)))
    }
}
