// What a relay draws at random: media keys, the keys of its listeners, and sources. Pure.
import RelayProtocol

/// The random numbers of a relay, and the sources in use, which are unique among all its channels: each shard draws others.
struct RelaySecrets: Sendable {
    var generator: any RandomNumberGenerator & Sendable
    private var sources: Set<SSRC> = []

    private let shard: (number: UInt32, count: UInt32)

    init(_ generator: any RandomNumberGenerator & Sendable, of shard: RelayShardPlace) {
        self.generator = generator
        self.shard = (UInt32(shard.number), UInt32(shard.count))
    }

    /// A source that nobody has.
    mutating func source() -> SSRC {
        while true {
            let drawn = UInt32.random(in: 1...UInt32.max, using: &generator)
            let (number, isTooLarge) = (drawn / shard.count * shard.count).addingReportingOverflow(shard.number)
            guard !isTooLarge, number > 0 else { continue }
            if sources.insert(SSRC(rawValue: number)).inserted { return SSRC(rawValue: number) }
        }
    }

    /// The owner of a source is gone.
    mutating func release(_ source: SSRC) { sources.remove(source) }

    /// A fresh media key, by default of a random epoch.
    mutating func mediaKey(epoch: UInt16? = nil) -> MediaKey {
        let epoch = epoch ?? UInt16.random(in: 0...UInt16.max, using: &generator)
        guard let key = MediaKey(epoch: epoch, baseKey: bytes(MediaKey.byteCountDefault)) else {
            preconditionFailure("a media key of the default size is one")
        }
        return key
    }

    mutating func downlinkKey() -> DownlinkKey {
        guard let key = DownlinkKey(bytes(DownlinkKey.byteCount)) else {
            preconditionFailure("a down-link key of the fixed size is one")
        }
        return key
    }

    mutating func pushID() -> PushID { PushID(rawValue: UInt64.random(in: 0...UInt64.max, using: &generator)) }

    private mutating func bytes(_ count: Int) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0...UInt8.max, using: &generator) }
    }
}
