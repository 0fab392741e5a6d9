// Encrypts frames into packets and decrypts packets into frames with the keys of one membership. It has no rules of the
// floor.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame
import Vocabulary

/// What exists while the link is ready: this end's source, the trailers' key, and the media keys. Not `Sendable`: it holds
/// keys in use.
struct MediaSession {
    /// A packet that was read, and may be opened.
    struct Packet {
        let bytes: UnsafeRawBufferPointer
        let header: RTPHeader
        let keyID: UInt64

        /// A packet in the only form that is allowed (docs/relay-protocol.md, section 8.1); nil: another one.
        init?(_ bytes: UnsafeRawBufferPointer) {
            guard bytes.count > RTPHeader.byteCount, let header = try? RTPHeader(parsing: bytes),
                let sealed = try? SFrameHeader(parsing: UnsafeRawBufferPointer(rebasing: bytes[RTPHeader.byteCount...]))
            else { return nil }
            self.bytes = bytes
            self.header = header
            keyID = sealed.keyID.rawValue
        }

        var metadata: UnsafeRawBufferPointer {
            UnsafeRawBufferPointer(rebasing: bytes[..<RTPHeader.byteCount])
        }
        var frame: UnsafeRawBufferPointer {
            UnsafeRawBufferPointer(rebasing: bytes[RTPHeader.byteCount...])
        }
    }

    /// The longest frame that is opened.
    static let plaintextMaximum = 2_048

    /// This end's source.
    let ssrc: SSRC
    private let downlinkOpener: TrailerOpener
    private var frameOpener = SFrameOpener()
    private(set) var mediaKey: MediaKey
    private var sealer: (requestID: FloorRequestID, sealer: SFrameSealer)?
    private let plaintext = Scratch(byteCount: plaintextMaximum)

    /// - Parameters:
    ///   - ssrc: This end's source.
    ///   - downlinkKey: Of the trailers of what comes down.
    ///   - mediaKey: The key in force.
    ///   - earlierKeys: Those of the connection before, the newest last: a burst that it interrupted may be sealed with one of them.
    /// - Throws: When the system's cryptography fails.
    init(
        ssrc: SSRC, downlinkKey: TrailerKey, mediaKey: MediaKey, earlierKeys: [MediaKey] = [], at now: Instant
    ) throws(CryptographyError) {
        self.ssrc = ssrc
        self.mediaKey = mediaKey
        downlinkOpener = try TrailerOpener(key: downlinkKey)
        for key in earlierKeys { frameOpener.setEpoch(key.epoch, baseKey: key.baseKey, at: now) }
        frameOpener.setEpoch(mediaKey.epoch, baseKey: mediaKey.baseKey, at: now)
    }

    /// The relay has renewed the media key; the ones before are good for bursts under way.
    mutating func renew(_ key: MediaKey, at now: Instant) {
        mediaKey = key
        frameOpener.setEpoch(key.epoch, baseKey: key.baseKey, at: now)
    }

    /// A burst that is sealed with an earlier key begins.
    mutating func expectBurst(_ key: MediaKey, at now: Instant) {
        frameOpener.expectBurst(of: key.epoch, baseKey: key.baseKey, at: now)
    }

    // MARK: Up

    /// Draws a key id for the burst of a request, and makes its sealer ready.
    mutating func beginBurst(
        _ requestID: FloorRequestID, using random: inout some RandomNumberGenerator
    ) throws(SFrameError) -> KeyID {
        let keyID =
            seededFault("a-key-id-is-used-twice")
            ? KeyID(epoch: mediaKey.epoch, random: 1) : KeyID.fresh(epoch: mediaKey.epoch, using: &random)
        sealer = (requestID, try SFrameSealer(baseKey: mediaKey.baseKey, keyID: keyID))
        return keyID
    }

    /// The RTP packet with the frame sealed in it (RFC 9605), its header authenticated; nil: it cannot be sealed.
    func seal(_ frame: UplinkStateMachine.MediaFrame, _ requestID: FloorRequestID) -> [UInt8]? {
        guard let sealer, sealer.requestID == requestID else { return nil }
        let header = RTPHeader(
            marker: frame.marker, sequence: frame.sequence, timestamp: frame.timestamp, ssrc: ssrc)
        let capacity = RTPHeader.byteCount + SFrameSealer.sealedByteCountMaximum(frame.payload.count)
        let packet = [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
            let output = UnsafeMutableRawBufferPointer(buffer)
            header.write(to: output)
            let body = UnsafeMutableRawBufferPointer(rebasing: output[RTPHeader.byteCount...])
            let metadata = UnsafeRawBufferPointer(rebasing: output[..<RTPHeader.byteCount])
            let sealed = frame.payload.withUnsafeBytes { payload in
                try? sealer.sealer.seal(payload, metadata: metadata, into: body)
            }
            count = sealed.map { RTPHeader.byteCount + $0 } ?? 0
        }
        return packet.isEmpty ? nil : packet
    }

    // MARK: Down

    /// The packet in a datagram whose trailer is right, and was not accepted before; nil: the relay did not send it.
    func authenticated(_ datagram: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        guard let (count, _) = try? downlinkOpener.open(datagram) else { return nil }
        return UnsafeRawBufferPointer(rebasing: datagram[..<count])
    }

    /// The Opus packet in a packet; nil: no key opens it, or it was opened before.
    mutating func open(_ packet: Packet, at now: Instant) -> [UInt8]? {
        guard
            let opened = try? frameOpener.open(
                packet.frame, metadata: packet.metadata, into: plaintext.buffer, at: now)
        else { return nil }
        return Array(plaintext.buffer[..<opened.byteCount])
    }
}

/// The buffer into which every packet is decrypted.
final class Scratch {
    let buffer: UnsafeMutableRawBufferPointer
    init(byteCount: Int) { buffer = .allocate(byteCount: byteCount, alignment: 16) }
    deinit { buffer.deallocate() }
}

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
