// The media keys that this end has received. A burst under an earlier key can be replayed.
import MonotonicTime
import RelayProtocol
import SFrame
import Vocabulary

/// The keys of the last epochs, the newest last. They are kept in memory only, while the channel is joined.
///
/// Live media are decrypted under the current epoch and, while their bursts last, under earlier ones (`SFrameOpener`).
/// A burst that the relay kept is older. Members that had the key at that time may decrypt it; the relay gives an
/// earlier key only to them.
struct MediaKeyring: Sendable {
    /// The most epochs.
    static let epochsMaximum = 8

    private var keys: [MediaKey] = []

    /// The keys that came last, the newest last: as many as live media may be sealed with.
    var latest: [MediaKey] { keys.suffix(SFrameOpener.earlierEpochsMaximum) }

    /// Takes a key; one of the same epoch goes.
    mutating func add(_ key: MediaKey) {
        keys.removeAll { $0.epoch == key.epoch }
        keys.append(key)
        if keys.count > Self.epochsMaximum { keys.removeFirst() }
    }

    /// The key of an epoch.
    func key(of epoch: UInt16) -> MediaKey? { keys.last { $0.epoch == epoch } }

    /// Whether what was sealed in an epoch can be opened.
    func has(_ epoch: UInt16) -> Bool { key(of: epoch) != nil }

    /// The frames in the packets of a burst, in their order. Those that cannot be opened are left out: a relay can leave packets out,
    /// but none that it made up is heard.
    func open(_ packets: [[UInt8]], of burst: BurstName, at now: Instant) -> [ReceivedFrame] {
        guard let key = key(of: burst.epoch) else { return [] }
        var opener = SFrameOpener()
        opener.setEpoch(key.epoch, baseKey: key.baseKey, at: now)
        let plaintext = Scratch(byteCount: MediaSession.plaintextMaximum)
        return packets.compactMap { bytes in
            bytes.withUnsafeBytes { raw -> ReceivedFrame? in
                guard let packet = MediaSession.Packet(raw), packet.keyID == burst.keyID,
                    packet.header.ssrc == burst.ssrc,
                    let opened = try? opener.open(
                        packet.frame, metadata: packet.metadata, into: plaintext.buffer, at: now)
                else { return nil }
                return ReceivedFrame(
                    sequence: packet.header.sequence, timestamp: packet.header.timestamp,
                    marker: packet.header.marker, payload: Array(plaintext.buffer[..<opened.byteCount]),
                    receivedAt: now)
            }
        }
    }
}
