// Client messages to and from protobuf.
import FoundationEssentials
import SwiftProtobuf
import Vocabulary

extension ClientMessage {
    typealias Wire = Pttd_Relay_V1_ClientMessage

    init(_ wire: Wire) throws(RelayMessageError) {
        switch wire.kind {
        case .join(let join): self = .join(try Join(join))
        case .leave: self = .leave
        case .floorRequest(let request):
            self = .floorRequest(
                FloorRequest(
                    requestID: try requestID(request.requestID),
                    priority: try priority(request.priority),
                    keyID: request.keyID, mayQueue: request.mayQueue))
        case .floorRelease(let release):
            self = .floorRelease(
                FloorRelease(
                    requestID: try requestID(release.requestID),
                    lastSequence: release.hasLastSequence ? try sequence(release.lastSequence) : nil))
        case .receptionReport(let report):
            self = .receptionReport(
                ReceptionReport(
                    ssrc: SSRC(rawValue: report.ssrc), received: report.received, lost: report.lost,
                    highestSequence: report.highestSequence, jitter: report.jitter))
        case .pushRegister(let register): self = .pushRegister(try PushRegister(register))
        case .pushUnregister(let unregister): self = .pushUnregister(try pushToken(unregister.token))
        case .pushReceipt(let receipt):
            self = .pushReceipt(
                PushReceipt(
                    id: PushID(rawValue: receipt.pushID),
                    outcome: PushOutcome(rawValue: receipt.outcome.rawValue) ?? .other))
        case .mediaRepair(let repair): self = .mediaRepair(try repairPacket(repair.packet))
        case .repairRequest(let request): self = .repairRequest(try RepairRequest(request))
        case .burstListRequest(let request): self = .burstListRequest(try burstRequestID(request.requestID))
        case .burstRequest(let request): self = .burstRequest(try BurstRequest(request))
        case .invitationRequest(let request): self = .invitationRequest(try InvitationRequest(request))
        case .successionOffer: self = .successionOffer
        case .invitationProof(let proof): self = .invitationProof(try InvitationProof(proof))
        case nil: throw .unknownKind
        }
    }

    var wire: Wire {
        var wire = Wire()
        switch self {
        case .join(let join): wire.join = join.wire
        case .leave: wire.leave = Pttd_Relay_V1_Leave()
        case .floorRequest(let request):
            wire.floorRequest.requestID = request.requestID.rawValue
            wire.floorRequest.priority = UInt32(request.priority)
            wire.floorRequest.keyID = request.keyID
            wire.floorRequest.mayQueue = request.mayQueue
        case .floorRelease(let release):
            wire.floorRelease.requestID = release.requestID.rawValue
            if let last = release.lastSequence { wire.floorRelease.lastSequence = UInt32(last) }
        case .receptionReport(let report):
            wire.receptionReport.ssrc = report.ssrc.rawValue
            wire.receptionReport.received = report.received
            wire.receptionReport.lost = report.lost
            wire.receptionReport.highestSequence = report.highestSequence
            wire.receptionReport.jitter = report.jitter
        case .pushRegister(let register): wire.pushRegister = register.wire
        case .pushUnregister(let token): wire.pushUnregister.token = Data(token.bytes)
        case .pushReceipt(let receipt):
            wire.pushReceipt.pushID = receipt.id.rawValue
            wire.pushReceipt.outcome = .init(rawValue: receipt.outcome.rawValue) ?? .other
        case .mediaRepair(let packet): wire.mediaRepair.packet = Data(packet)
        case .repairRequest(let request): wire.repairRequest = request.wire
        case .burstListRequest(let id): wire.burstListRequest.requestID = id.rawValue
        case .burstRequest(let request): wire.burstRequest = request.wire
        case .invitationRequest(let request): wire.invitationRequest = request.wire
        case .successionOffer: wire.successionOffer = .init()
        case .invitationProof(let proof): wire.invitationProof = proof.wire
        }
        return wire
    }
}

extension ClientMessage.Join {
    /// The version is not judged here: the relay answers a wrong one with a refusal that says so.
    fileprivate init(_ wire: Pttd_Relay_V1_Join) throws(RelayMessageError) {
        self.init(
            channel: try channelID(wire.channelID), token: try invitationToken(wire.invitationToken),
            displayName: try RelayProtocol.displayName(wire.displayName, "display_name"),
            protocolVersion: wire.protocolVersion, isPushOnly: wire.pushOnly)
    }

    fileprivate var wire: Pttd_Relay_V1_Join {
        var wire = Pttd_Relay_V1_Join()
        wire.channelID = Data(channel.bytes)
        wire.invitationToken = Data(token.bytes)
        wire.displayName = displayName.text
        wire.protocolVersion = protocolVersion
        wire.pushOnly = isPushOnly
        return wire
    }
}
