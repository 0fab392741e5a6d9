// What a relay draws at random: media keys, the keys of its listeners, and sources. Pure.
import RelayProtocol

/// The random numbers of a relay, and the sources in use, which are unique among all its channels.
struct RelaySecrets: Sendable {
    var generator: any RandomNumberGenerator & Sendable
    private var sources: Set<SSRC> = []

    init(_ generator: any RandomNumberGenerator & Sendable) { self.generator = generator }

    /// A source that nobody has.
    mutating func source() -> SSRC {
        while true {
            let candidate = SSRC(rawValue: UInt32.random(in: 1...UInt32.max, using: &generator))
            if sources.insert(candidate).inserted { return candidate }
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
