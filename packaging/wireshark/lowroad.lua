-- Shows two kinds of UDP payload in Wireshark and tshark: the parity datagrams of `lowroad relay` (`fec`), and the header of
-- datagrams that the generators of `lowroad compare` send.
--
-- Copy it to the folder of personal Lua plugins (Help > About > Folders), or run `tshark -X lua_script:lowroad.lua`.
-- docs/src/relay-configuration.md and crates/packet/src/payload.rs describe the formats.

local fec = Proto("lowroad_fec", "lowroad parity")
local fec_fields = {
	version = ProtoField.uint8("lowroad_fec.version", "Version"),
	group = ProtoField.uint8("lowroad_fec.group", "Datagrams in the group"),
	lengths = ProtoField.uint16("lowroad_fec.lengths", "Exclusive or of the lengths"),
	base = ProtoField.uint64("lowroad_fec.base", "Datagrams before the group"),
	parity = ProtoField.bytes("lowroad_fec.parity", "Exclusive or of the payloads"),
}
fec.fields = fec_fields

function fec.dissector(buffer, pinfo, tree)
	pinfo.cols.protocol = "LOWROAD-FEC"
	local group, base = buffer(4, 1), buffer(8, 8)
	pinfo.cols.info = string.format("parity of %d datagrams from %s", group:uint(), tostring(base:uint64()))
	local branch = tree:add(fec, buffer(), "lowroad parity")
	branch:add(fec_fields.version, buffer(3, 1))
	branch:add(fec_fields.group, group)
	branch:add(fec_fields.lengths, buffer(6, 2))
	branch:add(fec_fields.base, base)
	if buffer:len() > 16 then
		branch:add(fec_fields.parity, buffer(16))
	end
	return buffer:len()
end

-- A version other than 1 may have another layout.
local function is_fec(buffer, pinfo, tree)
	if buffer:len() < 16 or buffer(0, 4):uint() ~= 0xfe4c4601 then
		return false
	end
	fec.dissector(buffer, pinfo, tree)
	return true
end

local generated = Proto("lowroad", "lowroad generated datagram")
local generated_fields = {
	run = ProtoField.uint32("lowroad.run", "Run", base.HEX),
	flow = ProtoField.uint32("lowroad.flow", "Flow"),
	sequence = ProtoField.uint64("lowroad.sequence", "Sequence number"),
	intended = ProtoField.uint64("lowroad.intended_ns", "Intended time (ns, CLOCK_MONOTONIC)"),
	sent = ProtoField.uint64("lowroad.sent_ns", "Sent at (ns, CLOCK_MONOTONIC)"),
	late = ProtoField.int64("lowroad.late_ns", "Sent late by (ns)"),
}
generated.fields = generated_fields

function generated.dissector(buffer, pinfo, tree)
	pinfo.cols.protocol = "LOWROAD"
	local flow, sequence = buffer(12, 4), buffer(16, 8)
	pinfo.cols.info = string.format("flow %d sequence %s", flow:le_uint(), tostring(sequence:le_uint64()))
	local branch = tree:add(generated, buffer(0, 40), "lowroad generated datagram")
	branch:add_le(generated_fields.run, buffer(8, 4))
	branch:add_le(generated_fields.flow, flow)
	branch:add_le(generated_fields.sequence, sequence)
	branch:add_le(generated_fields.intended, buffer(24, 8))
	branch:add_le(generated_fields.sent, buffer(32, 8))
	local late = buffer(32, 8):le_int64() - buffer(24, 8):le_int64()
	branch:add(generated_fields.late, buffer(24, 16), late):set_generated()
	return 40
end

-- Version 2 and payload type 0 of RTP, and the magic where RTP has its timestamp.
local function is_generated(buffer, pinfo, tree)
	if buffer:len() < 40 or buffer(0, 2):uint() ~= 0x8000 or buffer(4, 4):le_uint() ~= 0x314f574c then
		return false
	end
	generated.dissector(buffer, pinfo, tree)
	return true
end

fec:register_heuristic("udp", is_fec)
generated:register_heuristic("udp", is_generated)
