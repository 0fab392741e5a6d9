// The connections that send media outside QUIC, and which of them are to be told what has come.
import Cryptography
import MonotonicTime
import RelayProtocol

/// What a connection sends outside QUIC: the check of its trailers, and what it is to be told of them.
final class MediaInlet {
    let outlet: MediaOutlet
    let ssrc: SSRC
    let opener: TrailerOpener
    fileprivate var receipts: UplinkReceipts
    /// Whether it is among those that are looked at for what was not told.
    fileprivate var isListed = false

    fileprivate init(_ outlet: MediaOutlet, key: TrailerKey, ssrc: SSRC) throws(CryptographyError) {
        self.outlet = outlet
        self.ssrc = ssrc
        opener = try TrailerOpener(key: key)
        receipts = UplinkReceipts(of: ssrc)
    }

    /// What is to be told now; nil: nothing has come since the last report.
    func takeReport(at now: Instant) -> UplinkReport? { receipts.takeReport(at: now) }
}

/// The inlets of one shard.
struct MediaInlets {
    private var all: [SSRC: MediaInlet] = [:]
    /// Those whose members may have to be told what has come.
    private var owing: [MediaInlet] = []
    /// When `takeDue` has something to do, or may have; nil: nobody has to be told anything.
    private(set) var deadline: Instant?

    /// The inlet that a packet claims to come from; nil: there is none, or it is too short.
    func inlet(of datagram: UnsafeRawBufferPointer) -> MediaInlet? {
        MediaPacketHeader.source(of: datagram).flatMap { all[$0] }
    }

    /// Packets of that source are taken from now on, if the system's cryptography works.
    mutating func insert(_ outlet: MediaOutlet, key: TrailerKey, ssrc: SSRC) {
        outlet.inlet = try? MediaInlet(outlet, key: key, ssrc: ssrc)
        all[ssrc] = outlet.inlet
    }

    /// No more packets of that inlet are taken.
    mutating func remove(_ inlet: MediaInlet) {
        all[inlet.ssrc] = nil
        inlet.outlet.inlet = nil
    }

    /// A packet of that counter came. Whether its sender is to be told now, or else later.
    mutating func note(_ counter: UInt32, of inlet: MediaInlet, at now: Instant) -> Bool {
        if inlet.receipts.received(counter, at: now) { return true }
        list(inlet, at: now)
        return false
    }

    /// The sender of that inlet may have to be told later what has come.
    mutating func list(_ inlet: MediaInlet, at now: Instant) {
        if !inlet.isListed {
            inlet.isListed = true
            owing.append(inlet)
        }
        if deadline == nil { deadline = now + UplinkReceipts.tail }
    }

    /// Those whose packets seem to have ceased, to be told now. In the middle of a burst the reports go with the packets.
    mutating func takeDue(at now: Instant) -> [MediaInlet] {
        guard let deadline, deadline <= now else { return [] }
        var (due, left): ([MediaInlet], [MediaInlet]) = ([], [])
        for inlet in owing {
            guard let since = inlet.receipts.owedSince, inlet.outlet.inlet === inlet else {
                inlet.isListed = false
                continue
            }
            guard now - since >= UplinkReceipts.interval else {
                left.append(inlet)
                continue
            }
            inlet.isListed = false
            due.append(inlet)
        }
        owing = left
        self.deadline = left.isEmpty ? nil : now + UplinkReceipts.tail
        return due
    }
}
